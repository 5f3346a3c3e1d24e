package rest

import (
	"errors"
	"net/http"
	"time"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// This file is the matrix of what is rendered and how. What a client accepts (negotiate.Accepted) has a media type and
// says what to show: the objects (Plain), their metadata, or a Table. Every answer about objects goes through one of
// three functions: answers.object, answers.list, and watchStream.append for the events of a watch.
//
//	               JSON                  YAML, indented JSON   protobuf               CBOR
//	object         appendObject          made from JSON        appendProtoObject      appendCBOR
//	  its metadata appendObject          made from JSON        appendProtoObject      made from JSON
//	list           writeJSONList (*)     made from JSON        writeProtoList (*)     writeCBORList
//	  of metadata  writeJSONList (*)     made from JSON        writeProtoList (*)     made from JSON
//	event          renderJSON            -                     renderProto            appendCBOREvent
//	Table          tableWriter           made from JSON        -                      made from JSON
//
// (*) A list that is large and sent with gzip is put together from compressed pieces that the cache keeps
// (writeByChunks). A dash is a combination that negotiation refuses. A custom resource has no protobuf encoding except for its
// metadata; its list in JSON is framed by its representation.
//
// JSON and protobuf of objects are cut from bytes that the cache has: nothing is decoded. YAML, indented JSON and most
// of CBOR are made from JSON when an answer is sent (writeBody).

// view is one object as an answer shows it: an object of the cache, with its item JSON if a write has just made it.
type view struct {
	o    *cache.Object
	item []byte
}

// answers writes objects of resources as responses.
type answers struct {
	now     func() time.Time // for ages in Tables
	created func(r *http.Request, s *registry.Served, o *cache.Object)
}

// object answers with one object. If it returns an error, it has sent nothing yet.
func (a answers) object(
	w http.ResponseWriter, r *http.Request, s *served, code int, accepted negotiate.Accepted, v view,
) error {
	if err := s.form.checkFormat(accepted); err != nil {
		return err
	}
	switch accepted.As {
	case negotiate.Table:
		return a.table(w, r, s, code, accepted, &page{revision: v.o.Revision}, []view{v})
	case negotiate.PartialMetadataList:
		return s.form.notAList()
	}
	buf := getBuffer()
	defer putBuffer(buf)
	var err error
	switch {
	case accepted.Media == scheme.Protobuf:
		*buf, err = s.appendProtoObject(r.Context(), (*buf)[:0], accepted, v)
	case accepted.Media == scheme.CBOR && accepted.As == negotiate.Plain:
		if *buf, err = s.appendCBOR(r.Context(), (*buf)[:0], v); err == nil {
			return sendBody(w, r, code, scheme.CBOR, *buf)
		}
	default:
		*buf, err = s.appendObject(r.Context(), (*buf)[:0], accepted, v)
		*buf = append(*buf, '\n')
	}
	if err != nil {
		return err
	}
	return writeBody(w, r, code, accepted, *buf)
}

// list answers a page of a list.
func (a answers) list(
	w http.ResponseWriter, r *http.Request, s *served, accepted negotiate.Accepted, p *page,
) error {
	if err := s.form.checkFormat(accepted); err != nil {
		return err
	}
	if accepted.As == negotiate.PartialMetadata {
		return apierr.NotAcceptable(
			"you requested PartialObjectMetadata, but the requested object is a list (" + s.form.goType() + "List)",
		)
	}
	// A document that is built whole takes several times the memory of its objects, so a large one is streamed in
	// a simpler form.
	if p.streamed != nil || s.isBuiltWhole(accepted) && s.listSize(p) > s.pageBytes {
		return a.streamed(w, r, s, accepted, p)
	}
	if accepted.As != negotiate.PartialMetadataList {
		if err := s.Resource.Renderer.Prepare(r.Context(), p.objects); err != nil {
			return err
		}
	}
	if err := hold(r, s.ownMemory(p)); err != nil {
		return err
	}
	if accepted.As == negotiate.Table {
		views := make([]view, len(p.objects))
		for i, o := range p.objects {
			views[i] = view{o: o}
		}
		return a.table(w, r, s, http.StatusOK, accepted, p, views)
	}
	if done, err := s.writeByChunks(w, r, accepted, p); done || err != nil {
		return err
	}
	switch {
	case accepted.Media == scheme.Protobuf:
		return s.writeProtoList(w, r, accepted, p)
	case accepted.Media == scheme.CBOR && accepted.As == negotiate.Plain:
		return s.writeCBORList(w, r, p)
	case accepted.Media == scheme.JSON && !accepted.Pretty:
		if accepted.As == negotiate.Plain && s.listSize(p) > s.pageBytes &&
			!s.Resource.Renderer.NoteRequest(s.Resource.Renderer.ItemEncodingID(s.Version, false)) {
			return a.streamed(w, r, s, accepted, p) // most clients list once: its encodings are not kept
		}
		return s.writeJSONList(w, r, accepted, p)
	}
	add := func(b, item []byte) ([]byte, error) { return append(b, item...), nil }
	body, err := s.jsonList(r.Context(), accepted, p, add, nil)
	if err != nil {
		return err
	}
	return writeBody(w, r, http.StatusOK, accepted, body)
}

// isBuiltWhole reports whether the document of a list is put together in memory before it is sent.
func (*served) isBuiltWhole(accepted negotiate.Accepted) bool {
	return accepted.Pretty || accepted.Media != scheme.JSON && accepted.Media != scheme.Protobuf
}

// errNoEvents ends a watch whose events cannot have the requested form. As in kube-apiserver, there is no error
// response.
var errNoEvents = errors.New("an event is not a list")
