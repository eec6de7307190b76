"""What a verb shows of its room: ``facts`` for programs and ``picture`` for people, one module a room."""
