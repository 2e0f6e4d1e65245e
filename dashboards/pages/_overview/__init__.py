"""Parts of the overview: verdict, what ran, advice."""
