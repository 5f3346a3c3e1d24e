package request

import (
	"net/url"
	"strings"
)

// redacted replaces credentials in logs and audit events.
const redacted = "REDACTED"

// isSecret reports whether the values of a parameter are credentials.
func isSecret(name string) bool {
	name = strings.ToLower(name)
	return name == "token" || name == "access_token"
}

// RedactedURI returns the path and the query of a URL without the values of parameters
// that are credentials, however their names are encoded. The rest is as it was sent.
func RedactedURI(u *url.URL) string {
	if !mayHave(strings.ToLower(u.RawQuery), "token") {
		return u.RequestURI()
	}
	var out strings.Builder
	for rest := u.RawQuery; rest != ""; {
		end := strings.IndexAny(rest, "&;") // programs differ about the semicolon
		separator := ""
		pair := rest
		if end >= 0 {
			pair, separator, rest = rest[:end], rest[end:end+1], rest[end+1:]
		} else {
			rest = ""
		}
		out.WriteString(redactedPair(pair))
		out.WriteString(separator)
	}
	clean := *u
	clean.RawQuery = out.String()
	return clean.RequestURI()
}

func redactedPair(pair string) string {
	name, _, hasValue := strings.Cut(pair, "=")
	plain, err := url.QueryUnescape(name)
	if hasValue && (err != nil || isSecret(plain)) { // a name that cannot be decoded may be a secret's
		return name + "=" + redacted
	}
	return pair
}
