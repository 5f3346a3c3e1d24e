// Package cors lets pages of other origins use the API from a browser
// (https://fetch.spec.whatwg.org/#http-cors-protocol).
package cors

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// What is answered to an allowed origin.
const (
	allowedMethods = "POST, GET, OPTIONS, PUT, DELETE, PATCH"
	allowedHeaders = "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since"
	exposedHeaders = "Date"
)

// help is what the words of errors end with.
const help = `Please ensure each expression matches the entire hostname by anchoring to the start with '^' or including the '//' prefix, and by anchoring to the end with '$' or including the ':' port separator suffix. Examples of valid expressions are '//example\.com(:|$)' and '^https://example\.com(:|$)'`

// Validate returns what is wrong with patterns of origins. One that is not bound to
// both ends of a host would allow hosts that anybody may register.
func Validate(patterns []string) error {
	var errs []error
	for _, p := range patterns {
		if p == "" {
			errs = append(errs, fmt.Errorf("empty value in --cors-allowed-origins, help: %s", help))
			continue
		}
		if err := validate(p); err != nil {
			errs = append(errs, fmt.Errorf("--cors-allowed-origins has an invalid regular expression: %w, help: %s", err, help))
		}
	}
	return errors.Join(errs...)
}

func validate(pattern string) error {
	if _, err := regexp.Compile(pattern); err != nil {
		return err
	}
	bound := func(marks ...string) bool {
		for _, m := range marks {
			if strings.Contains(pattern, m) {
				return true
			}
		}
		return false
	}
	if !bound("^", "//") || !bound("$", ":") {
		return errors.New("regular expression does not pin to start/end of host in the origin header")
	}
	return nil
}

// New returns the filter, nil for no patterns. They are valid.
func New(patterns []string) func(http.Handler) http.Handler {
	if len(patterns) == 0 {
		return nil
	}
	allowed := make([]*regexp.Regexp, len(patterns))
	for i, p := range patterns {
		allowed[i] = regexp.MustCompile(p)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			origin := r.Header.Get("Origin")
			if origin == "" || !matches(allowed, origin) {
				next.ServeHTTP(w, r)
				return
			}
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Methods", allowedMethods)
			h.Set("Access-Control-Allow-Headers", allowedHeaders)
			h.Set("Access-Control-Expose-Headers", exposedHeaders)
			h.Set("Access-Control-Allow-Credentials", "true")
			if r.Method == http.MethodOptions { // the browser asks before it sends
				w.WriteHeader(http.StatusNoContent)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func matches(allowed []*regexp.Regexp, origin string) bool {
	for _, e := range allowed {
		if e.MatchString(origin) {
			return true
		}
	}
	return false
}
