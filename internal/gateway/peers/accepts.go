package peers

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/storage"
)

// Annotations of a record, with the authorities and keys that its server accepts. kube-apiserver does not write or
// read them.
const (
	authoritiesAnnotation = "keelson.dev/client-authorities"
	keysAnnotation        = "keelson.dev/token-keys"
)

const (
	// mostAccepted is the largest number of authorities or keys in an annotation. If there are more, andMore
	// follows.
	mostAccepted = 20
	andMore      = "..."
	// mostRecords is the largest number of records of other servers that are compared.
	mostRecords = 100
)

// Accepts has the authorities and keys by which a server on a shared store accepts credentials. If two servers
// have none in common, each refuses the credentials that the other one accepts.
type Accepts struct {
	// Authorities are fingerprints of the authorities of client certificates.
	Authorities []string
	// TokenKeys are IDs of the public keys of service account tokens.
	TokenKeys []string
}

func (a Accepts) annotations() map[string]string {
	out := map[string]string{}
	for name, values := range map[string][]string{authoritiesAnnotation: a.Authorities, keysAnnotation: a.TokenKeys} {
		if len(values) > mostAccepted {
			values = append(slices.Clone(values[:mostAccepted]), andMore)
		}
		if len(values) > 0 {
			out[name] = strings.Join(values, ",")
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Separate reports whether both servers name some authorities, or keys, and none is in both lists. If a list was
// shortened, the result is false, because the entries that are left out may be in both.
func (a Accepts) Separate(b Accepts) (authorities, keys bool) {
	separate := func(a, b []string) bool {
		return len(a) > 0 && len(b) > 0 && !slices.Contains(a, andMore) && !slices.Contains(b, andMore) &&
			!slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
	}
	return separate(a.Authorities, b.Authorities), separate(a.TokenKeys, b.TokenKeys)
}

// Other is another server on the store.
type Other struct {
	Server  string // its name, see bootstrap.ServerName
	Address string // host:port
	Accepts Accepts
}

// Others returns the servers that have written a record within the last 15 seconds. It leaves out the record that
// r itself has written, and records that cannot be read.
func (r *Record) Others(ctx context.Context) (out []Other, err error) {
	r.mu.Lock()
	own := r.revision
	r.mu.Unlock()
	page, err := r.Store.Range(ctx, storage.RangeRequest{Start: recordPrefix, End: storage.PrefixEnd(recordPrefix), Limit: mostRecords})
	if err != nil {
		return nil, err
	}
	for _, entry := range page.Entries {
		e, err := decodeRecord(entry.Value)
		if err != nil || entry.ModRevision == own {
			continue
		}
		out = append(out, Other{
			Server: strings.TrimPrefix(entry.Key, recordPrefix), Address: addressIn(e), Accepts: accepts(e),
		})
	}
	return out, nil
}

func accepts(e *corev1.Endpoints) (out Accepts) {
	list := func(name string) []string {
		return strings.FieldsFunc(e.Annotations[name], func(r rune) bool { return r == ',' })
	}
	return Accepts{Authorities: list(authoritiesAnnotation), TokenKeys: list(keysAnnotation)}
}

// addressIn returns the address in a record, "" if it has none.
func addressIn(e *corev1.Endpoints) string {
	if len(e.Subsets) == 0 || len(e.Subsets[0].Addresses) == 0 || len(e.Subsets[0].Ports) == 0 ||
		e.Subsets[0].Addresses[0].IP == "" {
		return ""
	}
	return net.JoinHostPort(e.Subsets[0].Addresses[0].IP, strconv.Itoa(int(e.Subsets[0].Ports[0].Port)))
}
