package rest

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// The scale subresource shows a part of its parent as an autoscaling/v1 Scale. scalewrite.go has
// the writes.

var (
	scaleProto = wire.NewEnvelopeHead(write.ScaleKind.GroupVersion().String(), write.ScaleKind.Kind)
	scaleHead  = scheme.JSONHead(write.ScaleKind)
)

func (h *Handler) getScale(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	accepted, err := h.requests.response(r, info, s)
	if err != nil {
		return err
	}
	o, err := h.read(r, info, s)
	if err == nil {
		o, err = s.Resource.Reader.Readable(r.Context(), o)
	}
	if err != nil {
		return err
	}
	return h.answers.scale(w, r, info, s, accepted, o)
}

// scale answers with the Scale of o, in the version autoscaling/v1 whatever the version of the request is.
func (a answers) scale(
	w http.ResponseWriter, r *http.Request, info *request.Info, s *served, accepted negotiate.Accepted, o *cache.Object,
) error {
	obj, err := s.Resource.Decoder.Decode(r.Context(), o)
	if err != nil {
		return err
	}
	sub := s.Kind.Subresource(info.Subresource)
	if sub.Scale.Check != nil {
		if err := sub.Scale.Check(obj); err != nil {
			return kerrors.NewBadRequest(err.Error())
		}
	}
	// Only a custom resource may lack the field. As in kube-apiserver, a read answers 500, and a write without
	// replicas 400.
	if sub.Scale.Has != nil && !sub.Scale.Has(obj) {
		return kerrors.NewInternalError(
			fmt.Errorf("the spec replicas field %q does not exist", "."+strings.Join(sub.Scale.Path, ".")),
		)
	}
	scale := write.ScaleOf(sub, obj)
	scale.SetGroupVersionKind(write.ScaleKind)
	switch accepted.As {
	case negotiate.Table:
		table, err := newScaleTable(r, accepted, scale, a.now())
		if err != nil {
			return err
		}
		s.form.scaleTable(table, scale.Spec.Replicas)
		return writeTyped(w, r, http.StatusOK, accepted, wire.EnvelopeHead{}, table)
	case negotiate.PartialMetadata:
		return writePartial(w, r, http.StatusOK, accepted, &scale.ObjectMeta)
	case negotiate.PartialMetadataList:
		return apierr.NotAcceptable(
			"you requested PartialObjectMetadataList, but the requested object is not a list (*autoscaling.Scale)",
		)
	}
	return writeTyped(w, r, http.StatusOK, accepted, scaleProto, scale)
}

// scaleColumns are those of built-in kinds. A Scale of a custom resource has other descriptions and types
// (unstructuredScaleColumns).
var scaleColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	{Name: "Desired", Type: "integer", Description: autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]},
	{Name: "Available", Type: "integer", Description: autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]},
	{Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
}

// newScaleTable shows a Scale as a Table of one row.
func newScaleTable(
	r *http.Request, accepted negotiate.Accepted, scale *autoscalingv1.Scale, now time.Time,
) (*metav1.Table, error) {
	include, err := includeObject(r)
	if err != nil {
		return nil, err
	}
	row := metav1.TableRow{
		Cells: []any{scale.Name, scale.Spec.Replicas, scale.Status.Replicas, registry.ElapsedText(scale.CreationTimestamp.Time, now)},
	}
	switch include {
	case metav1.IncludeObject:
		row.Object.Object = scale
	case metav1.IncludeMetadata:
		row.Object.Object = partialObject(accepted, &scale.ObjectMeta)
	}
	return &metav1.Table{
		TypeMeta:          metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/" + accepted.AsVersion},
		ListMeta:          metav1.ListMeta{ResourceVersion: scale.ResourceVersion},
		ColumnDefinitions: scaleColumns,
		Rows:              []metav1.TableRow{row},
	}, nil
}

func partialObject(accepted negotiate.Accepted, meta *metav1.ObjectMeta) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/" + accepted.AsVersion},
		ObjectMeta: *meta,
	}
}

// writePartial writes the metadata of an object that is not stored.
func writePartial(
	w http.ResponseWriter, r *http.Request, code int, accepted negotiate.Accepted, meta *metav1.ObjectMeta,
) error {
	partial := partialObject(accepted, meta)
	return writeTyped(w, r, code, accepted, wire.NewEnvelopeHead(partial.APIVersion, partial.Kind), partial)
}
