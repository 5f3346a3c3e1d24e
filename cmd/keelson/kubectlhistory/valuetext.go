package kubectlhistory

import "encoding/json"

// valueText returns a value in one line of at most 60 characters.
func valueText(value any) string {
	const most = 60
	out, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	if text, ok := value.(string); ok && text != "" {
		out = []byte(text)
	}
	if text := []rune(string(out)); len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(out)
}
