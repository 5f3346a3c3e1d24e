package localusers

import (
	"crypto/sha256"
	"slices"
	"testing"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
)

func TestTokens(t *testing.T) {
	var users Users
	find := func(token string) []string {
		t.Helper()
		u, err := users.UserOfToken(t.Context(), authn.BearerToken{Hash: sha256.Sum256([]byte(token))})
		if err != nil {
			t.Fatal(err)
		}
		if u == nil {
			return nil
		}
		return append([]string{u.Name}, u.Groups...)
	}
	if got := find("x"); got != nil {
		t.Errorf("before the first token: %q", got)
	}
	jane, groups := users.Token("jane", []string{"a", "b"}), []string{"a"}
	if again := users.Token("jane", []string{"a", "b"}); again != jane {
		t.Error("the second token of a user is another one")
	}
	other := users.Token("jane", groups)
	groups[0] = "system:masters" // the caller keeps its slice
	for token, want := range map[string][]string{
		jane: {"jane", "a", "b", "system:authenticated"}, other: {"jane", "a", "system:authenticated"}, "x": nil,
	} {
		if got := find(token); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
