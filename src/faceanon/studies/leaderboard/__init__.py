"""The leaderboard: every result of some folders on one page."""
