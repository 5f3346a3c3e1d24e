package rest

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// includeObject reads the parameter includeObject: which part of its object a row contains.
func includeObject(r *http.Request) (metav1.IncludeObjectPolicy, error) {
	switch policy := metav1.IncludeObjectPolicy(queryValue(r, "includeObject")); policy {
	case "":
		return metav1.IncludeMetadata, nil
	case metav1.IncludeMetadata, metav1.IncludeObject, metav1.IncludeNone:
		return policy, nil
	default:
		return "", kerrors.NewBadRequest("Unable to convert to Table as requested: " +
			field.Invalid(field.NewPath("includeObject"), string(policy), "must be 'Metadata', 'Object', 'None', or empty").Error())
	}
}

// genericColumns are the columns of kinds that declare none.
var genericColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
}

// genericCells fill genericColumns.
func genericCells(obj registry.Object) []any {
	return []any{obj.GetName(), obj.GetCreationTimestamp().Time.UTC().Format(time.RFC3339)}
}

// tableWriter encodes tables of one kind.
type tableWriter struct {
	s        *served
	accepted negotiate.Accepted
	include  metav1.IncludeObjectPolicy
	// object is the decoded object if the table has just one and it is already decoded.
	object registry.Object
	// listed are the objects of the rows of a list, and listCells returns their cells; both are nil if the rows of the kind do
	// not depend on each other.
	listed    map[*cache.Object]registry.Object
	listCells func(registry.Object) []any
	ages      ages
}

// table answers with a Table. Sorting and ListCells need all rows, so a table that is streamed from the store has
// neither.
func (a answers) table(
	w http.ResponseWriter, r *http.Request, s *served, code int, accepted negotiate.Accepted, p *page, rows []view,
) error {
	include, err := includeObject(r)
	if err != nil {
		return err
	}
	if err := sortRows(r.Context(), s, rows); err != nil {
		return err
	}
	t := tableWriter{s: s, accepted: accepted, include: include, ages: ages{now: a.now()}}
	if of := s.Kind.Table.ListCells; of != nil && p.objects != nil {
		if err := t.setListCells(r.Context(), rows, of); err != nil {
			return err
		}
	}
	buf := getBuffer()
	defer putBuffer(buf)
	if accepted.Media == scheme.JSON && !accepted.Pretty && code == http.StatusOK && len(rows) > streamedRows {
		return t.stream(w, r, (*buf)[:0], p, rows)
	}
	b, err := t.append(r.Context(), (*buf)[:0], p, rows, true)
	*buf = b
	if err != nil {
		return err
	}
	*buf = append(b, '\n')
	return writeBody(w, r, code, accepted, *buf)
}

// sortRows sorts the rows of a kind whose tables have an order of their own.
func sortRows(ctx context.Context, s *served, rows []view) error {
	compare := s.Kind.Table.Compare
	if compare == nil || len(rows) < 2 {
		return nil
	}
	objects := make(map[*cache.Object]registry.Object, len(rows))
	for _, v := range rows {
		obj, err := s.Resource.Decoder.Decode(ctx, v.o)
		if err != nil {
			return err
		}
		objects[v.o] = obj
	}
	slices.SortStableFunc(rows, func(a, b view) int { return compare(objects[a.o], objects[b.o]) })
	return nil
}

// setListCells decodes the objects of the rows and passes them to of, which returns the function listCells.
func (t *tableWriter) setListCells(
	ctx context.Context, rows []view, of func([]registry.Object) func(registry.Object) []any,
) error {
	all := make([]registry.Object, len(rows))
	t.listed = make(map[*cache.Object]registry.Object, len(rows))
	for i, v := range rows {
		var err error
		if all[i], err = t.s.Resource.Decoder.Decode(ctx, v.o); err != nil {
			return err
		}
		t.listed[v.o] = all[i]
	}
	t.listCells = of(all)
	return nil
}

// streamedRows is the largest number of rows of a table that is put together before it is sent, so that an error
// can still be answered. A larger table is sent in chunks.
const streamedRows = 100

// stream sends a long table in chunks.
func (t *tableWriter) stream(w http.ResponseWriter, r *http.Request, b []byte, p *page, rows []view) error {
	b, err := t.open(b, p, true)
	if err != nil {
		return err
	}
	// The first row is made before the status is sent. What fails for all rows, such as a conversion webhook, is
	// then still answered as an error.
	if b, err = t.appendRow(r.Context(), b, rows[0]); err != nil {
		return err
	}
	size := 0
	if t.include == metav1.IncludeObject {
		for _, v := range rows { // a row is put together as a whole
			size = max(size, 2*len(v.o.Data))
		}
	}
	if err := hold(r, size); err != nil {
		return err
	}
	out, err := newStream(w, r, scheme.JSON, math.MaxInt)
	if err != nil {
		return err
	}
	defer out.close()
	for _, v := range rows[1:] {
		if b, err = t.appendRow(r.Context(), append(b, ','), v); err != nil {
			// The status was sent already. Only a closed connection can tell the client of the error.
			panic(http.ErrAbortHandler)
		}
		if len(b) >= chunk {
			b, _ = out.flush(b)
		}
	}
	_, _ = out.flush(append(b, "]}\n"...))
	return nil
}

// append appends a table (meta.k8s.io Table).
func (t *tableWriter) append(ctx context.Context, b []byte, p *page, rows []view, columns bool) ([]byte, error) {
	b, err := t.open(b, p, columns)
	for i, v := range rows {
		if err != nil {
			return b, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b, err = t.appendRow(ctx, b, v)
	}
	return append(b, "]}"...), err
}

// open appends a table up to its first row. columns is false for all events of a watch after the first: clients
// keep the definitions.
func (t *tableWriter) open(b []byte, p *page, columns bool) ([]byte, error) {
	b = append(b, `{"kind":"Table","apiVersion":"meta.k8s.io/`...)
	b = append(b, t.accepted.AsVersion...)
	b = append(b, `","metadata":`...)
	b = appendListMeta(b, p)
	b = append(b, `,"columnDefinitions":`...)
	definitions := t.s.Kind.Table.Columns
	if definitions == nil {
		definitions = genericColumns
	}
	if columns {
		text, err := json.Marshal(definitions)
		if err != nil {
			return b, err
		}
		b = append(b, text...)
	} else {
		b = append(b, "null"...)
	}
	return append(b, `,"rows":[`...), nil
}

func (t *tableWriter) appendRow(ctx context.Context, b []byte, v view) ([]byte, error) {
	row, err := t.row(ctx, v)
	if err != nil {
		return b, err
	}
	b = t.ages.append(b, row)
	b = append(b, `,"object":`...)
	if b, err = t.appendRowObject(ctx, b, v); err != nil {
		return b, err
	}
	return append(b, '}'), nil
}

// row returns the JSON of the row of an object up to the member object, with marks for ages. Rows of objects in the
// cache are kept with them.
func (t *tableWriter) row(ctx context.Context, v view) ([]byte, error) {
	switch {
	case t.listCells != nil:
		return t.s.encodeCells(t.listed[v.o], t.listCells)
	case t.object != nil:
		return t.s.encodeRow(t.object)
	case v.item != nil: // a write's answer
		obj, err := t.s.Resource.Decoder.Decode(ctx, v.o)
		if err != nil {
			return nil, err
		}
		return t.s.encodeRow(obj)
	}
	return t.s.Resource.Renderer.Row(ctx, v.o, t.s.encodeRow)
}

// appendRowObject appends the member object of a row. The metadata is the default: kubectl needs the name and the
// namespace of each row.
func (t *tableWriter) appendRowObject(ctx context.Context, b []byte, v view) ([]byte, error) {
	switch t.include {
	case metav1.IncludeNone:
		return append(b, "null"...), nil
	case metav1.IncludeObject:
		item, err := t.s.itemJSON(ctx, v)
		if err != nil {
			return b, err
		}
		return scheme.AppendJSONObject(b, t.s.JSONHead, item), nil
	}
	meta, err := t.s.metadataJSON(ctx, v)
	if err != nil {
		return b, err
	}
	return appendPartial(b, t.accepted.AsVersion, meta), nil
}
