package scheme

import (
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// TestJSONToYAMLKeepsCharacters converts texts with every character to YAML and back.
func TestJSONToYAMLKeepsCharacters(t *testing.T) {
	for c := rune(0); c <= 0x10000; c++ {
		if !utf8.ValidRune(c) {
			continue
		}
		want := map[string]string{"text": "a" + string(c) + "b", "member " + string(c): "x"}
		doc, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		converted, err := JSONToYAML(doc)
		if err != nil {
			t.Errorf("U+%04X: %v", c, err)
			continue
		}
		back, err := YAMLToJSON(converted)
		if err != nil {
			t.Errorf("U+%04X: %q: %v", c, converted, err)
			continue
		}
		var got map[string]string
		if err := json.Unmarshal(back, &got); err != nil || got["text"] != want["text"] || got["member "+string(c)] != "x" {
			t.Errorf("U+%04X: %q becomes %q (%v)", c, doc, back, err)
		}
		if c == 0x3000 { // the characters up to U+D7F0 are letters and are skipped
			c = 0xd7f0
		}
	}
}
