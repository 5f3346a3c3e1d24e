package apiextensions

import (
	"fmt"
	"slices"
	"strings"
)

// stringFormats are the formats of strings that are validated, without hyphens: a name with
// hyphens means the same format.
var stringFormats = []string{
	"bsonobjectid", "byte", "cidr", "creditcard", "date", "datetime", "duration", "email", "hexcolor", "hostname",
	"ipv4", "ipv6", "isbn", "isbn10", "isbn13", "k8slongname", "k8sshortname", "mac", "password", "rgbcolor",
	"ssn", "uri", "uuid", "uuid3", "uuid4", "uuid5",
}

// formatWarnings returns warnings about unknown formats. On update it warns only about new
// ones.
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

// unrecognizedFormats returns the formats in the definition's schemas that are not known for
// the type beside them, sorted and without duplicates.
func unrecognizedFormats(spec *definitionSpec) []string {
	var out []string
	anySchemaMatches(spec, func(s *props) bool {
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
