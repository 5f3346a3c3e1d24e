// Package cors is the filter for cross-origin requests of browsers
// (https://fetch.spec.whatwg.org/#http-cors-protocol).
package cors

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/keelson-dev/keelson/config"
)

// The values of the headers that an allowed origin gets.
const (
	allowedMethods = "POST, GET, OPTIONS, PUT, DELETE, PATCH"
	allowedHeaders = "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, " +
		"X-Requested-With, If-Modified-Since"
	exposedHeaders = "Date"
)

// patternHelp is the end of the messages of Validate.
const patternHelp = `Please ensure each expression matches the entire hostname by anchoring to the start with '^' ` +
	`or including the '//' prefix, and by anchoring to the end with '$' or including the ':' port separator ` +
	`suffix. Examples of valid expressions are '//example\.com(:|$)' and '^https://example\.com(:|$)'`

// Validate returns an error for patterns of origins that are not valid. A pattern has to match
// the whole host: otherwise it would also allow other hosts, which anybody may register.
func Validate(patterns []string) error {
	var errs []error
	for _, p := range patterns {
		if p == "" {
			errs = append(errs, config.Errorf("empty value in {Requests.CORSAllowedOrigins}, help: %s", patternHelp))
			continue
		}
		if err := validate(p); err != nil {
			errs = append(errs,
				config.Errorf("{Requests.CORSAllowedOrigins} has an invalid regular expression: %w, help: %s", err, patternHelp))
		}
	}
	return errors.Join(errs...)
}

func validate(pattern string) error {
	if _, err := regexp.Compile(pattern); err != nil {
		return err
	}
	containsAny := func(a, b string) bool { return strings.Contains(pattern, a) || strings.Contains(pattern, b) }
	if !containsAny("^", "//") || !containsAny("$", ":") {
		return errors.New("regular expression does not pin to start/end of host in the origin header")
	}
	if host, slash := strings.CutSuffix(strings.TrimSuffix(pattern, "$"), "/"); slash && !strings.HasSuffix(host, ":/") &&
		strings.Contains(host, "//") {
		return errors.New("an origin has no slash behind the host, so the expression can never match")
	}
	return nil
}

// New returns the filter, nil if there are no patterns. The patterns have to be valid (see
// Validate).
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
			matches := func(e *regexp.Regexp) bool { return e.MatchString(origin) }
			if origin == "" || !slices.ContainsFunc(allowed, matches) {
				next.ServeHTTP(w, r)
				return
			}
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Methods", allowedMethods)
			h.Set("Access-Control-Allow-Headers", allowedHeaders)
			h.Set("Access-Control-Expose-Headers", exposedHeaders)
			h.Set("Access-Control-Allow-Credentials", "true")
			if r.Method == http.MethodOptions { // a preflight request
				w.WriteHeader(http.StatusNoContent)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}
