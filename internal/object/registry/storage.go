package registry

import "k8s.io/apimachinery/pkg/runtime/schema"

// Storage describes where and how the objects of a kind are stored.
type Storage struct {
	// Version is the version that objects are stored in. The functions of Strategy, Deletion and Table see objects
	// of that version.
	Version string
	// Path is the key below /registry/, without slashes at its ends ("pods", "services/specs", "minions"). A kind
	// without a path stores nothing.
	Path string
	// GroupVersion is the apiVersion of a stored value if it differs from the group and Version: in a protobuf
	// envelope, another version with the same message; with StoredJSON, the version of the stored document.
	GroupVersion string
	// JSON stores JSON instead of the protobuf envelope.
	JSON bool
	// StoredJSON converts to and from the stored document where that is not the JSON of Version. JSON must be set.
	StoredJSON *StoredJSON
	// Documents makes the kind one whose objects are unstructured; JSON must be set. Version is then the version of
	// the requests, which the functions of the kind see.
	Documents Documents
	// Since is the revision at which the resource began to exist, 0 if it always has. A watch from an earlier
	// revision gets 410 Expired, as from kube-apiserver, whose history of a resource begins with the resource.
	Since int64
	// DefaultOnRead are fields of the stored message, as in Field.Path, that may be missing because something after
	// the defaults removed them. Where one is missing or empty, the defaults of Version are set when the object is
	// read from the store.
	DefaultOnRead [][]int32
	// AfterDecode sets fields of a decoded object that are not stored.
	AfterDecode func(Object)
	// TTLSeconds removes objects that many seconds after their last write; 0 keeps them.
	TTLSeconds int64
}

// StoredVersion returns the apiVersion of stored values.
func (k *Kind) StoredVersion() string {
	if k.Storage.GroupVersion != "" {
		return k.Storage.GroupVersion
	}
	return schema.GroupVersion{Group: k.Group, Version: k.Storage.Version}.String()
}

// StoredJSON converts between the storage version and a stored document of
// another version.
type StoredJSON struct {
	// Encode makes the document, with apiVersion and kind, without a newline at
	// its end.
	Encode func(Object) ([]byte, error)
	// Decode reads a document that Encode, or kube-apiserver, made.
	Decode func(document []byte) (Object, error)
}
