"""Parts of the Overview page: verdict, run metadata, findings."""
