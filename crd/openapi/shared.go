package openapi

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/keelson-dev/keelson/discovery/openapi/archive"
)

// sharedDefinitions are the built-in definitions that documents of version 3 repeat,
// as the members of components.schemas.
type sharedDefinitions struct {
	all, scale []archive.Member // scale are those that only the subresource of that name needs
}

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
			if all[i].Value, err = withKindsOfClients(a, m.Value); err != nil {
				return nil, err
			}
		}
	}
	scale = slices.DeleteFunc(scale, func(m archive.Member) bool { return known[string(m.Key)] })
	// Copies, since these are parts of all that was decompressed.
	for _, members := range [][]archive.Member{all, scale} {
		for i, m := range members {
			members[i] = archive.Member{Key: bytes.Clone(m.Key), Value: bytes.Clone(m.Value)}
		}
	}
	return &sharedDefinitions{all: all, scale: scale}, nil
}

// withKindsOfClients lists DeleteOptions' groups and versions. In the documents of
// built-in groups those are the group's own; in those of custom resources they are all
// that client-go has clients for, and of those only the document of version 2 tells.
func withKindsOfClients(a *archive.Archive, deleteOptions []byte) ([]byte, error) {
	const member = "x-kubernetes-group-version-kind"
	text, err := a.ReadV2()
	if err != nil {
		return nil, err
	}
	list, _, err := archive.Find(text, "definitions", deleteOptionsModel, member)
	if err != nil {
		return nil, err
	}
	var kinds []struct {
		Group   string `json:"group"`
		Kind    string `json:"kind"`
		Version string `json:"version"`
	}
	if err := json.Unmarshal(list, &kinds); err != nil {
		return nil, err
	}
	withoutClient := []string{"admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io"}
	out := kinds[:0]
	for _, k := range kinds {
		if !slices.Contains(withoutClient, k.Group) {
			out = append(out, k)
		}
	}
	var definition map[string]json.RawMessage
	if err := json.Unmarshal(deleteOptions, &definition); err != nil {
		return nil, err
	}
	if definition[member], err = json.Marshal(out); err != nil {
		return nil, err
	}
	return json.Marshal(definition)
}
