package request

import (
	"net/url"
	"testing"
)

func TestRedactedURI(t *testing.T) {
	for in, want := range map[string]string{
		"/api?x=1":                       "/api?x=1",
		"/api?x=%25&b=2":                 "/api?x=%25&b=2",
		"/api?token=s&x=1":               "/api?token=REDACTED&x=1",
		"/api?%74oken=s&x=1":             "/api?%74oken=REDACTED&x=1",
		"/api?TOKEN=s":                   "/api?TOKEN=REDACTED",
		"/api?access%5Ftoken=s&token=u":  "/api?access%5Ftoken=REDACTED&token=REDACTED",
		"/api?a=1;token=s":               "/api?a=1;token=REDACTED",
		"/api?%zz=s&tokens=1&token&a":    "/api?%zz=REDACTED&tokens=1&token&a",
		"/a%2Fb?token=s":                 "/a%2Fb?token=REDACTED",
		"/api?fieldSelector=a%3Dtoken&b": "/api?fieldSelector=a%3Dtoken&b",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := RedactedURI(u); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}
