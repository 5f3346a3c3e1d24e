package apiextensions

import (
	"fmt"

	"k8s.io/client-go/util/jsonpath"
)

// unreadableColumns warns of printer columns whose path cannot be parsed. kube-apiserver accepts them without a warning, and shows none of
// the columns from the first such one on.
func unreadableColumns(spec *definitionSpec) (out []string) {
	for i := range spec.Versions {
		v := &spec.Versions[i]
		for j := range v.AdditionalPrinterColumns {
			c := &v.AdditionalPrinterColumns[j]
			if err := jsonpath.New(c.Name).Parse("{" + c.JSONPath + "}"); err != nil {
				out = append(out, fmt.Sprintf("version %s: the column %q is not shown, because its path %q cannot be parsed: %v",
					v.Name, c.Name, c.JSONPath, err))
			}
		}
	}
	return out
}
