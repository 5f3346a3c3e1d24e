package openapi

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi/archive"
)

// sharedDefinitions are the built-in definitions that each version 3 document repeats, as members of
// components.schemas.
type sharedDefinitions struct {
	all, scale []archive.Member // scale are needed only for the subresource scale
}

// readShared reads the shared definitions from the built-in documents.
func readShared(a *archive.Archive) (*sharedDefinitions, error) {
	all, err := a.Definitions(deleteOptionsModel, listMetaModel, objectMetaModel, patchModel, statusModel)
	if err != nil {
		return nil, err
	}
	scale, err := a.Definitions(scaleModel)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for i, m := range all {
		known[string(m.Key)] = true
		if string(m.Key) == deleteOptionsModel {
			if all[i].Value, err = withClientKinds(a, m.Value); err != nil {
				return nil, err
			}
		}
	}
	scale = slices.DeleteFunc(scale, func(m archive.Member) bool { return known[string(m.Key)] })
	// The members are copied, because they are slices of the whole decompressed document.
	for _, members := range [][]archive.Member{all, scale} {
		for i, m := range members {
			members[i] = archive.Member{Key: bytes.Clone(m.Key), Value: bytes.Clone(m.Value)}
		}
	}
	return &sharedDefinitions{all: all, scale: scale}, nil
}

// withClientKinds sets the list of groups and versions of DeleteOptions. In the documents of built-in groups the list
// has only that group. In the documents of custom resources it has all groups for which client-go has clients, which
// are read from the version 2 document.
func withClientKinds(a *archive.Archive, deleteOptions []byte) ([]byte, error) {
	const member = "x-kubernetes-group-version-kind"
	text, err := a.ReadV2()
	if err != nil {
		return nil, err
	}
	list, _, err := archive.Find(text, "definitions", deleteOptionsModel, member)
	if err != nil {
		return nil, err
	}
	type groupKind struct {
		Group   string `json:"group"`
		Kind    string `json:"kind"`
		Version string `json:"version"`
	}
	var kinds []groupKind
	if err := json.Unmarshal(list, &kinds); err != nil {
		return nil, err
	}
	withoutClient := []string{"admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io"}
	kinds = slices.DeleteFunc(kinds, func(k groupKind) bool { return slices.Contains(withoutClient, k.Group) })
	var definition map[string]json.RawMessage
	if err := json.Unmarshal(deleteOptions, &definition); err != nil {
		return nil, err
	}
	if definition[member], err = json.Marshal(kinds); err != nil {
		return nil, err
	}
	return json.Marshal(definition)
}
