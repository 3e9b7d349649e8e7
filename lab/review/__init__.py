"""What adapters decide about their figures: a review's cases, and each adapter beside what it was before."""
