package aggregator

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/client"
)

// list reads the pages of a list. It has one object in memory at a time.
type list struct {
	resource schema.GroupVersionResource
	yield    func(client.Metadata) bool
	ended    bool // yield has returned false

	// revision and next are the resourceVersion and the continue token of the last page.
	revision, next string
	// bytes is how many more bytes the list may have, and kept how many more bytes of metadata.
	bytes, kept int64
	// tokens are the hashes of the tokens of the pages so far.
	tokens map[uint64]bool
	seed   maphash.Seed
}

// read reads a page.
func (l *list) read(response *http.Response) error {
	if response.StatusCode != http.StatusOK {
		_, err := readAnswer(response, call{Ref: client.Ref{Resource: l.resource}, method: http.MethodGet})
		if err == nil {
			err = fmt.Errorf("the list of %v has status %d", l.resource, response.StatusCode)
		}
		return err
	}
	l.next, l.revision = "", ""
	page := &io.LimitedReader{R: response.Body, N: min(maxAnswer, l.bytes)}
	before := page.N
	in := &pieces{in: page}
	err := l.readPage(json.NewDecoder(in), in)
	l.bytes -= before - page.N
	switch {
	case err != nil && page.N == 0:
		return fmt.Errorf("a page of the list of %v, or the list, has too many bytes", l.resource)
	case err != nil || l.ended:
		return err
	}
	return l.checkToken()
}

// checkToken refuses a token that leads to a page that was read already: such a list has no end.
func (l *list) checkToken() error {
	if l.next == "" {
		return nil
	}
	if len(l.tokens) == 0 {
		l.seed = maphash.MakeSeed()
	}
	hash := maphash.String(l.seed, l.next)
	if len(l.next) > maxToken || l.tokens[hash] {
		return fmt.Errorf("the list of %v has a continue token twice, or one that is too long", l.resource)
	}
	const entry = 64 // about the bytes of an entry of tokens, so that the number of pages has a limit too
	if l.kept -= entry; l.kept < 0 {
		return l.tooLarge()
	}
	l.tokens[hash] = true
	return nil
}

func (l *list) tooLarge() error {
	return fmt.Errorf("the list of %v has more than %d bytes of metadata", l.resource, maxKept)
}

// readPage reads the members of a list object.
func (l *list) readPage(d *json.Decoder, in *pieces) error {
	if err := expect(d, json.Delim('{')); err != nil {
		return err
	}
	for d.More() {
		in.begin()
		name, err := d.Token()
		if err != nil {
			return err
		}
		in.begin()
		switch name {
		case "metadata":
			var metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			}
			if err := d.Decode(&metadata); err != nil {
				return err
			}
			l.revision, l.next = metadata.ResourceVersion, metadata.Continue
		case "items":
			if err := l.readItems(d, in); err != nil || l.ended {
				return err
			}
		default:
			var other json.RawMessage
			if err := d.Decode(&other); err != nil {
				return err
			}
		}
	}
	return expect(d, json.Delim('}'))
}

func (l *list) readItems(d *json.Decoder, in *pieces) error {
	switch start, err := d.Token(); {
	case err != nil:
		return err
	case start == nil:
		return nil // null
	case start != json.Delim('['):
		return errNoList
	}
	for d.More() {
		in.begin()
		var object objectMeta
		if err := d.Decode(&object); err != nil {
			return err
		}
		m := object.metadata()
		if l.kept -= sizeOf(&m); l.kept < 0 {
			return l.tooLarge()
		}
		if !l.yield(m) {
			l.ended = true
			return nil
		}
	}
	return expect(d, json.Delim(']'))
}

var errNoList = errors.New("the response is not a list")

func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = errNoList
	}
	return err
}

// sizeOf returns about how many bytes the metadata of an object take.
func sizeOf(m *client.Metadata) int64 {
	const object, reference = 200, 100
	n := object + len(m.Namespace) + len(m.Name) + len(m.UID)
	for _, f := range m.Finalizers {
		n += len(f)
	}
	for i := range m.Owners {
		o := &m.Owners[i]
		n += reference + len(o.APIVersion) + len(o.Kind) + len(o.Name) + len(o.UID)
	}
	return int64(n)
}

// pieces is a reader of values, one after the other. It fails inside a value that is larger than maxObject, so
// that a decoder does not keep the value in memory.
type pieces struct {
	// unread comes before in.
	unread []byte
	in     io.Reader
	piece  int // bytes since begin
}

// begin is called at the beginning of a value.
func (p *pieces) begin() { p.piece = 0 }

var errPiece = fmt.Errorf("the extension API server sent an object with more than %d bytes", maxObject)

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (n int, err error) {
	if p.piece > maxObject {
		return 0, errPiece
	}
	if len(p.unread) > 0 {
		n = copy(b, p.unread)
		p.unread = p.unread[n:]
	} else {
		n, err = p.in.Read(b)
	}
	p.piece += n
	return n, err
}
