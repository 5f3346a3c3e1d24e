package history

import (
	"bytes"
	"encoding/json"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// Changed returns the paths of the fields that differ between two objects in JSON, as Paths does. It does not
// decode the parts that have the same bytes in both; in two versions of an object these are most of the text.
func Changed(before, after []byte) (paths []string, more int, err error) {
	b, a, err := differing(before, after, 0, false)
	if err != nil {
		return nil, 0, err
	}
	was, _ := b.(map[string]any)
	is, _ := a.(map[string]any)
	paths, more = Paths(was, is)
	return paths, more, nil
}

// maxDepth is the depth to which objects are compared by their bytes. It is limited because each level reads all
// bytes below it again.
const maxDepth = 16

// differing decodes two JSON values, but leaves out the members of objects that have the same bytes in both. It also
// leaves out metadata.managedFields: Paths ignores them, and they differ in most versions.
func differing(before, after []byte, depth int, metadata bool) (b, a any, err error) {
	if !isObject(before) || !isObject(after) || depth == maxDepth {
		if err = json.Unmarshal(before, &b); err == nil {
			err = json.Unmarshal(after, &a)
		}
		return b, a, err
	}
	was, err := membersOf(before)
	if err != nil {
		return nil, nil, err
	}
	old, now := map[string]any{}, map[string]any{}
	var failed error
	err = wire.EachMember(after, func(name, value []byte) bool {
		v, there := was[string(name)]
		delete(was, string(name))
		if there && bytes.Equal(v, value) || metadata && string(name) == "managedFields" {
			return true
		}
		key, err := unquote(name)
		if err == nil && !there {
			now[key] = nil // the value does not matter: the field is new
		}
		if err == nil && there {
			old[key], now[key], err = differing(v, value, depth+1, depth == 0 && key == "metadata")
		}
		failed = err
		return err == nil
	})
	for name := range was {
		if key, err := unquote([]byte(name)); err == nil {
			old[key] = nil
		}
	}
	if err == nil {
		err = failed
	}
	return old, now, err
}

func isObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }

// membersOf returns the values of an object by their names. Escapes in the names are not decoded.
func membersOf(object []byte) (map[string][]byte, error) {
	members := map[string][]byte{}
	err := wire.EachMember(object, func(name, value []byte) bool {
		members[string(name)] = value
		return true
	})
	return members, err
}

// unquote returns the name of a member.
func unquote(name []byte) (string, error) {
	if bytes.IndexByte(name, '\\') < 0 {
		return string(name), nil
	}
	var s string
	err := json.Unmarshal(append(append([]byte{'"'}, name...), '"'), &s)
	return s, err
}
