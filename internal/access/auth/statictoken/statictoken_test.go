package statictoken

import (
	"reflect"
	"testing"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

func read(content string) (*Authenticator, error) {
	s := &Authenticator{}
	return s, s.Replace([]byte(content))
}

func TestStatic(t *testing.T) {
	s, err := read("a,ann,1,\"g1,g2\"\nb,bob,2\n,nobody,3\na,anna,4\n")
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]*request.User{
		"a": {Name: "anna", UID: "4", Groups: []string{"system:authenticated"}}, // the last line counts
		"b": {Name: "bob", UID: "2", Groups: []string{"system:authenticated"}},
		"c": nil,
		"":  nil,
	} {
		user, err := s.UserOfToken(t.Context(), authn.NewBearerToken(token))
		if !reflect.DeepEqual(user, want) || err != nil {
			t.Errorf("%q: %+v %v, want %+v", token, user, err, want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for _, content := range []string{"a,b\n", "a,b,\"c\n", "token\n"} {
		if _, err := read(content); err == nil {
			t.Errorf("%q is accepted", content)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("a,ann,1,\"g1,g2\"\n")
	f.Fuzz(func(t *testing.T, content string) {
		s, err := read(content)
		if err != nil {
			return
		}
		if user, _ := s.UserOfToken(t.Context(), authn.NewBearerToken("")); user != nil {
			t.Error("an empty token is accepted")
		}
	})
}
