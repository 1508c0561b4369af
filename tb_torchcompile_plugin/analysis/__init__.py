"""One room for each panel, of its name: functions of a profile or of compile data that give the rows that leave."""
