package report

// Middle shortens a text to so many columns of a terminal. It keeps the end, because keys often differ there.
func Middle(text string, columns int) string {
	if width(text) <= columns {
		return text
	}
	begin := terminal.Truncate(text, columns/2, "")
	return begin + terminal.TruncatePrefix(text, columns-width(begin), "…")
}
