package apiresponse

import (
	"net/http"
	"sort"
	"strconv"
	"strings"
)

// MediaRange is one media range of an Accept header (RFC 9110 section 12.5.1).
type MediaRange struct {
	Type, Subtype string
	Params        map[string]string // without q; nil if there are none
	Q             float64
}

// ParseAccept returns the media ranges of an Accept header in order of preference: first by
// weight, then the more specific range, then in the order of the header. An empty header
// accepts everything. Parts that are not valid are ignored.
func ParseAccept(header string) []MediaRange {
	if header == "" {
		return []MediaRange{{Type: "*", Subtype: "*", Q: 1}}
	}
	var clauses []MediaRange
	for _, part := range strings.Split(header, ",") {
		if c, ok := parseClause(part); ok {
			clauses = append(clauses, c)
		}
	}
	sort.SliceStable(clauses, func(i, j int) bool {
		a, b := &clauses[i], &clauses[j]
		if a.Q != b.Q {
			return a.Q > b.Q
		}
		return a.specificity() > b.specificity()
	})
	return clauses
}

func (r *MediaRange) specificity() int {
	switch {
	case r.Type == "*":
		return 0
	case r.Subtype == "*":
		return 1
	}
	return 2
}

func parseClause(s string) (MediaRange, bool) {
	c := MediaRange{Q: 1}
	media, params, _ := strings.Cut(s, ";")
	var ok bool
	c.Type, c.Subtype, ok = strings.Cut(strings.TrimSpace(media), "/")
	if !ok && c.Type == "*" {
		c.Subtype, ok = "*", true
	}
	if !ok || c.Type == "" || c.Subtype == "" {
		return c, false
	}
	for params != "" {
		var param string
		param, params, _ = strings.Cut(params, ";")
		key, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		switch key {
		case "":
		case "q":
			if q, err := strconv.ParseFloat(value, 64); err == nil {
				c.Q = q
			}
		default:
			if c.Params == nil {
				c.Params = map[string]string{}
			}
			c.Params[key] = value
		}
	}
	return c, true
}

// Matches reports whether the range includes the media type. It ignores parameters.
func (r *MediaRange) Matches(mediaType string) bool {
	if r.Type == "*" && r.Subtype == "*" {
		return true
	}
	t, sub, _ := strings.Cut(mediaType, "/")
	return r.Type == t && (r.Subtype == sub || r.Subtype == "*")
}

// RequestsConversion reports whether the range requests the response as another kind, such as a Table.
func (r *MediaRange) RequestsConversion() bool {
	return r.Params["as"] != "" || r.Params["g"] != "" || r.Params["v"] != ""
}

// Negotiate returns the first offered media type that the client accepts without a conversion.
func Negotiate(clauses []MediaRange, offered []string) (string, bool) {
	for i := range clauses {
		if clauses[i].RequestsConversion() {
			continue
		}
		for _, mediaType := range offered {
			// YAML cannot be used for a stream.
			if clauses[i].Matches(mediaType) && (clauses[i].Params["stream"] == "" || mediaType != YAML) {
				return mediaType, true
			}
		}
	}
	return "", false
}

// AcceptsAny reports whether a range includes an offered media type, whatever its parameters
// are.
func AcceptsAny(clauses []MediaRange, offered []string) bool {
	for i := range clauses {
		for _, mediaType := range offered {
			if clauses[i].Matches(mediaType) {
				return true
			}
		}
	}
	return false
}

// AcceptsGzip reports whether the client reads gzip (RFC 9110 section 12.5.3). A weight
// of zero is a refusal; other weights are not compared.
func AcceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, parameter, _ := strings.Cut(coding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, isQ := strings.CutPrefix(strings.TrimSpace(parameter), "q=")
			weight, err := strconv.ParseFloat(q, 64)
			return !isQ || err == nil && weight > 0
		}
	}
	return false
}
