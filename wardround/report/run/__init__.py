"""The report of a run or comparison."""
