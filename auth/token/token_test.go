package token

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/request"
)

func withToken(header string) *http.Request {
	r, _ := http.NewRequest(http.MethodGet, "/", nil)
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	return r
}

func TestStatic(t *testing.T) {
	s, err := Read(strings.NewReader("a,ann,1,\"g1,g2\"\nb,bob,2\n,nobody,3\na,anna,4\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		header string
		user   *request.User
		err    error
	}{
		{"Bearer a", &request.User{Name: "anna", UID: "4", Groups: []string{"system:authenticated"}}, nil}, // the last line counts
		{"bearer b more", &request.User{Name: "bob", UID: "2", Groups: []string{"system:authenticated"}}, nil},
		{"Bearer c", nil, ErrInvalid},
		{"Bearer ", nil, nil},
		{"Bearer  a", nil, nil},
		{"Basic a", nil, nil},
		{"", nil, nil},
	} {
		user, err := s.Authenticate(withToken(c.header))
		if !reflect.DeepEqual(user, c.user) || err != c.err {
			t.Errorf("%q: %+v %v, want %+v %v", c.header, user, err, c.user, c.err)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for _, content := range []string{"a,b\n", "a,b,\"c\n", "token\n"} {
		if _, err := Read(strings.NewReader(content)); err == nil {
			t.Errorf("%q is accepted", content)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("a,ann,1,\"g1,g2\"\n")
	f.Fuzz(func(t *testing.T, content string) {
		s, err := Read(strings.NewReader(content))
		if err != nil {
			return
		}
		if user, _ := s.Authenticate(withToken("Bearer")); user != nil {
			t.Error("an empty token is accepted")
		}
	})
}
