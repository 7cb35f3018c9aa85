"""The learners, as estimators with the manners of scikit-learn."""
