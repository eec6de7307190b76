"""Charts of the rooms: what ``--plot`` of a verb draws from what the verb has found."""
