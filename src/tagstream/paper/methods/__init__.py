"""The paper's method to the letter, and its competitors."""
