// Package hsts sets the header Strict-Transport-Security, which tells browsers to use only
// HTTPS (RFC 6797).
package hsts

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/keelson-dev/keelson/config"
)

// header is the name of the header in canonical form.
const header = "Strict-Transport-Security"

// directive matches a valid directive.
var directive = regexp.MustCompile(`^(max-age=\d+|includeSubDomains|preload)$`)

// Validate returns an error for directives that are not valid.
func Validate(directives []string) error {
	var errs []error
	for _, d := range directives {
		switch d = strings.TrimSpace(d); {
		case d == "":
			errs = append(errs, config.Errorf("empty value in {Requests.HSTSDirectives}").
				OnCommandLine("empty value in strict-transport-security-directives"))
		case !directive.MatchString(d):
			errs = append(errs, config.Errorf("{Requests.HSTSDirectives} invalid, allowed values: max-age=expireTime, "+
				"includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information"))
		}
	}
	return errors.Join(errs...)
}

// New returns the filter, nil if there are no directives.
func New(directives []string) func(http.Handler) http.Handler {
	if len(directives) == 0 {
		return nil
	}
	value := []string{strings.Join(directives, "; ")}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()[header] = value
			next.ServeHTTP(w, r)
		})
	}
}
