"""A stream that changes: what a label looks like moves, and a window forgets the old days."""

import numpy as np

import tagstream as ts

rng = np.random.default_rng(0)
n, p, q = 3000, 10, 3
X = rng.normal(size=(n, p))
before, after = rng.normal(size=(2, p, q))
share = np.clip((np.arange(n) - 1400) / 200, 0, 1)[:, None, None]  # from 1,400 to 1,600
Y = (np.einsum("np,npq->nq", X, (1 - share) * before + share * after) > 0.5).astype(np.uint8)


def recent(model):
    course = ts.prequential(model, X, Y, window=300, every=300)
    return {point.n_items: point.recent["micro_f1"] for point in course.curve}


keeps, forgets = recent(ts.OML(random_state=0)), recent(ts.OML(window=600, random_state=0))
for n_items in (1200, 1800, 3000):
    print(f"after {n_items}: keeps {keeps[n_items]:.2f}, forgets {forgets[n_items]:.2f}")
print("the window is better in the end:", forgets[3000] > keeps[3000])
