"""What a comparison of runs says: one page, shown as Markdown, HTML, pictures and on the screen."""
