"""The process that a target runs in: started, asked, watched and ended."""
