package workers

import "k8s.io/client-go/util/workqueue"

// turns is a queue in which groups of items, such as namespaces, take turns: Pop returns one item of each group
// before it returns a second item of any group. So an item waits for at most one item of each other group in each
// turn, however many items they have. The items of one group are in the order in which they were added. turns
// implements workqueue.Queue, which synchronizes the calls.
type turns[T comparable] struct {
	group  func(T) string
	groups map[string]workqueue.Queue[T] // no queue in it is empty
	next   workqueue.Queue[string]       // the groups, in the order of their turns
	length int
}

func newTurns[T comparable](group func(T) string) *turns[T] {
	return &turns[T]{
		group: group, groups: map[string]workqueue.Queue[T]{}, next: workqueue.DefaultQueue[string](),
	}
}

// Touch implements workqueue.Queue.
func (t *turns[T]) Touch(T) {}

// Push implements workqueue.Queue.
func (t *turns[T]) Push(item T) {
	name := t.group(item)
	items := t.groups[name]
	if items == nil {
		items = workqueue.DefaultQueue[T]()
		t.groups[name] = items
		t.next.Push(name)
	}
	items.Push(item)
	t.length++
}

// Len implements workqueue.Queue.
func (t *turns[T]) Len() int { return t.length }

// Pop implements workqueue.Queue.
func (t *turns[T]) Pop() T {
	name := t.next.Pop()
	items := t.groups[name]
	item := items.Pop()
	t.length--
	if items.Len() > 0 {
		t.next.Push(name)
	} else {
		delete(t.groups, name)
	}
	return item
}
