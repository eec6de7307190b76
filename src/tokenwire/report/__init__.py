"""To read: the terminal's tables and scenes, and plots. In: results of the rooms. Out: text and figures."""
