package changes

import (
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// wantsTable reports whether a client prefers a Table of meta.k8s.io/v1, as kubectl get does.
func wantsTable(r *http.Request) bool {
	for _, m := range apiresponse.ParseAccept(r.Header.Get("Accept")) {
		if m.Matches(apiresponse.JSON) {
			return m.Params["as"] == "Table" && m.Params["g"] == metav1.GroupName && m.Params["v"] == "v1"
		}
	}
	return false
}

// columns are the columns of the Table that tableOf returns.
var columns = []metav1.TableColumnDefinition{
	{Name: "Time", Type: "string", Description: "When the change was written."},
	{Name: "Change", Type: "string", Description: "What the change did to the object."},
	{Name: "Resource", Type: "string", Description: "The resource of the object, with its group."},
	{Name: "Name", Type: "string", Format: "name", Description: "The name of the object."},
	{Name: "User", Type: "string", Description: "Who made the change."},
	{Name: "Verb", Type: "string", Priority: 1, Description: "The verb of the request, and its subresource."},
	{Name: "Changed", Type: "string", Priority: 1, Description: "The paths of the fields that changed."},
}

// tableOf returns changes as a Table.
func tableOf(meta metav1.ListMeta, items []history.ObjectChange) *metav1.Table {
	t := &metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}, ListMeta: meta,
		ColumnDefinitions: columns, Rows: []metav1.TableRow{},
	}
	for i := range items {
		c := &items[i]
		at := ""
		if c.Time != nil {
			at = c.Time.Format(time.RFC3339)
		}
		verb, resource := c.Verb, c.Resource
		if c.Subresource != "" {
			verb += " " + c.Subresource
		}
		if c.Group != "" {
			resource += "." + c.Group
		}
		t.Rows = append(t.Rows, metav1.TableRow{
			Cells: []any{at, string(c.Type), resource, c.Name, c.User, verb, strings.Join(c.Changed, " ")},
			Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
				ObjectMeta: metav1.ObjectMeta{
					Name: c.Metadata.Name, Namespace: c.Namespace, ResourceVersion: c.ResourceVersion,
				},
			}},
		})
	}
	return t
}
