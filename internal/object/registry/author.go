package registry

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Author is who made a change, and how. A store that keeps history keeps it beside the change (storage.Txn.By), so it needs
// no place in the object.
type Author struct {
	// User is the user of the request or of the controller, Impersonator the one who acted in the name of User.
	User, Impersonator string
	// Verb and Subresource are those of the request: "patch" and "status". A deletion because a time to live has ended has no
	// Verb.
	Verb, Subresource string
	// Manager is the field manager, UserAgent the client program, AuditID the ID of the request in the audit log.
	Manager, UserAgent, AuditID string
	// Reason is why a part of the server made the change by itself: the garbage collector names the owner that is gone.
	Reason string
}

// maxAuthorField is the largest number of bytes of a field of an Author that is stored, because the length is
// stored in one byte. There has to be a limit, because clients choose some fields, such as UserAgent.
const maxAuthorField = uuidLength - 1

// fields are the fields of a, in the order in which they are stored. New ones come last.
func (a *Author) fields() []*string {
	return []*string{
		&a.Verb, &a.Subresource, &a.User, &a.Impersonator, &a.Manager, &a.UserAgent, &a.AuditID, &a.Reason,
	}
}

// Encode appends a to dst: for each field one byte with its length, and its text. An AuditID that is a UUID is
// stored as 16 bytes, with the length 255.
func (a *Author) Encode(dst []byte) []byte {
	for _, f := range a.fields() {
		s := *f
		if f == &a.AuditID {
			if id, ok := parseUUID(s); ok {
				dst = append(append(dst, uuidLength), id[:]...)
				continue
			}
		}
		s = s[:min(len(s), maxAuthorField)]
		dst = append(append(dst, byte(len(s))), s...)
	}
	return dst
}

const uuidLength = 255

var errAuthor = errors.New("registry: damaged record of an author")

// DecodeAuthor decodes what a store has kept beside a change.
func DecodeAuthor(b []byte) (a Author, err error) {
	for _, f := range a.fields() {
		if len(b) == 0 {
			return a, nil
		}
		n := int(b[0])
		b = b[1:]
		if n == uuidLength {
			if len(b) < 16 {
				return a, errAuthor
			}
			*f, b = formatUUID([16]byte(b)), b[16:]
			continue
		}
		if n > len(b) {
			return a, errAuthor
		}
		*f, b = strings.ToValidUTF8(string(b[:n]), "\uFFFD"), b[n:]
	}
	return a, nil
}

// parseUUID returns the bytes of a UUID in lower case.
func parseUUID(s string) (id [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, false
	}
	n := 0
	for _, part := range []string{s[:8], s[9:13], s[14:18], s[19:23], s[24:]} {
		m, err := hex.Decode(id[n:], []byte(part))
		if err != nil {
			return id, false
		}
		n += m
	}
	return id, formatUUID(id) == s
}

func formatUUID(id [16]byte) string {
	var s [36]byte
	hex.Encode(s[:8], id[:4])
	hex.Encode(s[9:13], id[4:6])
	hex.Encode(s[14:18], id[6:8])
	hex.Encode(s[19:23], id[8:10])
	hex.Encode(s[24:], id[10:])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// authorOf returns the author of a write: the user of the request of ctx, or the server itself without a request.
// verb is used if ctx has no verb.
func authorOf(ctx context.Context, verb, manager string) Author {
	a := Author{Verb: verb, Manager: manager, User: request.Server, Reason: request.ReasonFrom(ctx)}
	if u := request.UserFrom(ctx); u != nil {
		a.User = u.Name
	}
	if of, subresource := request.VerbFrom(ctx); of != "" {
		a.Verb, a.Subresource = of, subresource
	}
	if i := request.InfoFrom(ctx); i != nil {
		a.Impersonator, a.UserAgent, a.AuditID = i.Impersonator, i.UserAgent, i.AuditID
	}
	return a
}
