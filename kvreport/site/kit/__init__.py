"""What every page is drawn with: tables, charts, diagrams, fonts, templates."""
