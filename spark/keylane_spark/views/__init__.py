"""Views: windows over topics, kept in lanes of their own."""
