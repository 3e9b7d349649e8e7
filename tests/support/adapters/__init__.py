"""Third parties' adapters, good and bad, and how a folder comes to look like an installed package."""
