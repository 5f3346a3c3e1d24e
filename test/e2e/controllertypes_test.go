package e2e

import (
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

// These are the types of testdata/controllers. v2 is the stored version; in v1 the number is a string.
var (
	tasksV2 = schema.GroupVersion{Group: "e2e.example.com", Version: "v2"}
	tasksV1 = schema.GroupVersion{Group: "e2e.example.com", Version: "v1"}
)

func addTasks(s *runtime.Scheme) error {
	s.AddKnownTypes(tasksV2, &Task{}, &TaskList{})
	s.AddKnownTypeWithName(tasksV1.WithKind("Task"), &OldTask{})
	metav1.AddToGroupVersion(s, tasksV2)
	metav1.AddToGroupVersion(s, tasksV1)
	return nil
}

type Task struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              TaskSpec   `json:"spec"`
	Status            TaskStatus `json:"status,omitempty"`
}

type TaskSpec struct {
	Replicas int32  `json:"replicas"`
	Class    string `json:"class,omitempty"`
}

type TaskStatus struct {
	Ready              int32 `json:"ready,omitempty"`
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

func (t *Task) DeepCopyObject() runtime.Object {
	out := *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// Hub marks the version that other versions are converted to and from.
func (*Task) Hub() {}

type TaskList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Task `json:"items"`
}

func (l *TaskList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Task, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Task)
	}
	return &out
}

type OldTask struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              OldTaskSpec `json:"spec"`
}

type OldTaskSpec struct {
	Count string `json:"count,omitempty"`
	Class string `json:"class,omitempty"`
}

func (t *OldTask) DeepCopyObject() runtime.Object {
	out := *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// ConvertTo converts t to the hub version.
func (t *OldTask) ConvertTo(hub conversion.Hub) error {
	n, err := strconv.ParseInt(t.Spec.Count, 10, 32)
	if err != nil {
		return fmt.Errorf("spec.count: %w", err)
	}
	task := hub.(*Task)
	task.ObjectMeta = t.ObjectMeta
	task.Spec = TaskSpec{Replicas: int32(n), Class: t.Spec.Class}
	return nil
}

// ConvertFrom converts a task in the hub version to t.
func (t *OldTask) ConvertFrom(hub conversion.Hub) error {
	task := hub.(*Task)
	t.ObjectMeta = task.ObjectMeta
	t.Spec = OldTaskSpec{Count: strconv.Itoa(int(task.Spec.Replicas)), Class: task.Spec.Class}
	return nil
}
