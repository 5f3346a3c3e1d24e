package webhook

// Values returns about how many values JSON text has, which is what decoding it costs: a value of two bytes takes fifty and
// more in memory. It counts commas and opening brackets outside of strings.
func Values(text []byte) int {
	n, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == ',' || c == '[' || c == '{'):
			n++
		}
	}
	return n
}
