package apiextensions

import (
	"fmt"
	"slices"
	"strings"
)

// stringFormats are the formats of strings that are checked, without their
// hyphens: names with and without are the same.
var stringFormats = []string{
	"bsonobjectid", "byte", "cidr", "creditcard", "date", "datetime", "duration", "email", "hexcolor", "hostname",
	"ipv4", "ipv6", "isbn", "isbn10", "isbn13", "k8slongname", "k8sshortname", "mac", "password", "rgbcolor",
	"ssn", "uri", "uuid", "uuid3", "uuid4", "uuid5",
}

// formatWarnings tells of formats that mean nothing to the server. An update is
// told only of those that are new.
func formatWarnings(d, old *definition) []string {
	var known []string
	if old != nil {
		known = unrecognizedFormats(&old.Spec)
	}
	var out []string
	for _, format := range unrecognizedFormats(&d.Spec) {
		if !slices.Contains(known, format) {
			out = append(out, fmt.Sprintf("unrecognized format %q", format))
		}
	}
	return out
}

// unrecognizedFormats are the formats of a definition's schemas that are not
// recognized for the type beside them, each once, in order.
func unrecognizedFormats(spec *definitionSpec) []string {
	var out []string
	anySchema(spec, func(s *props) bool {
		if s.Format != "" && !recognized(s.Type, s.Format) && !slices.Contains(out, s.Format) {
			out = append(out, s.Format)
		}
		return false
	})
	slices.Sort(out)
	return out
}

func recognized(kind, format string) bool {
	switch kind {
	case "", "string":
		return slices.Contains(stringFormats, strings.ReplaceAll(format, "-", ""))
	case "integer":
		return format == "int32" || format == "int64"
	case "number":
		return format == "float" || format == "double"
	}
	return false
}
