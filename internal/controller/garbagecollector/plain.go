package garbagecollector

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/client"
)

// plainObjects are objects of this server that have neither owners nor dependents and whose deletion has not begun.
// Most objects of most servers are such. Nodes for a million objects take 0.2 GB and, while objects are created, nearly half of
// the server's processor time, because Go's collector follows their pointers again and again. A plain object takes about 40
// bytes and has no pointer.
type plainObjects struct {
	byUID     map[compactUID]plainObject
	locations []*location
	numbers   map[*location]uint32 // the index in locations
}

// plainObject is what the graph has to know of a plain object until another object names it as its owner.
type plainObject struct {
	location uint32 // index in locations
	list     uint32 // see node.list
}

func newPlainObjects() plainObjects {
	return plainObjects{byUID: map[compactUID]plainObject{}, numbers: map[*location]uint32{}}
}

// isPlain reports whether the state of an object at p needs no node, unless it has dependents.
func isPlain(p *location, m *client.Metadata) bool {
	return len(m.Owners) == 0 && !m.Deleting && !p.remote
}

// add adds an object. It returns false if the UID does not have the form of the UIDs that the server makes. Such
// an object needs a node.
func (o *plainObjects) add(p *location, uid types.UID, list uint32) bool {
	id, ok := parseUID(uid)
	if !ok {
		return false
	}
	n, known := o.numbers[p]
	if !known {
		n = uint32(len(o.locations))
		o.locations, o.numbers[p] = append(o.locations, p), n
	}
	o.byUID[id] = plainObject{location: n, list: list}
	return true
}

// find returns the location of an object, nil if it is not among the plain ones, and the number of its last list.
func (o *plainObjects) find(uid types.UID) (p *location, list uint32) {
	id, ok := parseUID(uid)
	if !ok {
		return nil, 0
	}
	found, ok := o.byUID[id]
	if !ok {
		return nil, 0
	}
	return o.locations[found.location], found.list
}

func (o *plainObjects) remove(uid types.UID) {
	if id, ok := parseUID(uid); ok {
		delete(o.byUID, id)
	}
}

// sweep removes the objects of a resource that were not in the list with this number. They have no dependents.
func (o *plainObjects) sweep(resource schema.GroupResource, list uint32) {
	for id, found := range o.byUID {
		if found.list != list && o.locations[found.location].resource.GroupResource() == resource {
			delete(o.byUID, id)
		}
	}
}

// compactUID is a UID as 16 bytes.
type compactUID [16]byte

// parseUID returns a UID as 16 bytes. It returns false if the UID does not have the form of the UIDs that the
// server makes. Different UIDs of this form have different bytes.
func parseUID(uid types.UID) (id compactUID, ok bool) {
	const digits, length = "0123456789abcdef", 36
	if len(uid) != length {
		return id, false
	}
	n := 0 // digits so far
	for i := range length {
		switch i {
		case 8, 13, 18, 23:
			if uid[i] != '-' {
				return id, false
			}
			continue
		}
		d := strings.IndexByte(digits, uid[i])
		if d < 0 {
			return id, false
		}
		id[n/2] = id[n/2]<<4 | byte(d)
		n++
	}
	return id, true
}
