package write

import (
	"errors"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// takesNew refuses new objects of a resource whose definition is being deleted. It is an early check that saves
// work; the step "commit" decides.
func takesNew(t *registry.Served, name string) error {
	if !t.Creates.IsClosed() {
		return nil
	}
	return terminating(t, name)
}

func terminating(t *registry.Served, name string) error {
	return kerrors.NewForbidden(
		t.GroupResource(), name, errors.New("create not allowed while custom resource definition is terminating"),
	)
}

// alreadyExists returns the error for a create of obj, because found exists. If found is being deleted, the message
// says so.
func alreadyExists(t *registry.Served, obj registry.Object, found *cache.Object) error {
	err := kerrors.NewAlreadyExists(t.GroupResource(), found.Name)
	if obj.GetGenerateName() != "" { // also if the object came with a name
		// The 1 is retryAfterSeconds: a client that sent only generateName can send the same request again.
		err = kerrors.NewGenerateNameConflict(t.GroupResource(), found.Name, 1)
	}
	if old, failed := t.Resource.Decoder.DecodeStored(found); failed == nil && old.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}
