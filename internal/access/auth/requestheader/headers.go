package requestheader

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Headers returns the headers of an authenticating proxy for the user
// (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#authenticating-proxy).
func Headers(user *request.User) http.Header {
	h := http.Header{"X-Remote-User": {user.Name}}
	if user.UID != "" {
		h["X-Remote-Uid"] = []string{user.UID}
	}
	if len(user.Groups) > 0 {
		h["X-Remote-Group"] = append([]string(nil), user.Groups...)
	}
	for key, values := range user.Extra {
		name := http.CanonicalHeaderKey("X-Remote-Extra-" + escapeKey(key))
		h[name] = append(h[name], values...)
	}
	return h
}

// escapeKey percent-encodes the characters of a key of extra that are not allowed in the name of a header, and the
// percent sign.
func escapeKey(key string) string {
	var b strings.Builder
	for i := range len(key) {
		if c := key[i]; c == '%' || !isTokenByte(c) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// isTokenByte reports whether a byte may be in the name of a header (RFC 9110, section 5.6.2).
func isTokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
