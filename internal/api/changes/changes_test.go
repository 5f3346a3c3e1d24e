package changes

import "testing"

// TestTokens checks that a feed continues where the response with a continue token ended, and that it refuses
// other texts and tokens of the other order.
func TestTokens(t *testing.T) {
	for _, c := range []struct {
		newest bool
		token  string
		ok     bool
	}{
		{false, "7", true}, {false, "0", false}, {false, "-1", false}, {false, "x", false}, {false, "7.8.9", false},
		{true, "9.0.12", true}, {true, "9.3.12", true}, {true, "0.3.12", false}, {true, "9.3", false}, {true, "7", false}, {true, "9.3.0", false},
	} {
		f := feed{newest: c.newest}
		if err := f.resume(c.token); (err == nil) != c.ok || c.ok && f.token() != c.token {
			t.Errorf("%q, newest first %t: %v, and the token %q", c.token, c.newest, err, f.token())
		}
	}
}
