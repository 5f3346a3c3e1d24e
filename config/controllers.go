package config

// Controllers configures the controllers in the server.
type Controllers struct {
	// Names are the controllers of kube-controller-manager that run in the server, in the syntax of its flag
	// --controllers: "*" means all, "name" switches one on, "-name" switches one off, and "-*" means none. The
	// default is all of them. With StorageEtcd, the default is only serviceaccount-controller and
	// resourcequota-controller. The controllers pause while a
	// kube-controller-manager runs (--controllers).
	Names []string `flag:"controllers"`
	// NoGarbageCollection means that no garbage collector deletes the dependents of deleted objects: deletions then
	// ignore the propagation policy, and set no finalizers for the garbage collector
	// (--enable-garbage-collector=false).
	NoGarbageCollection bool `flag:"!enable-garbage-collector"`
	// NoDefaultServiceAccounts does not create the service account "default" in new namespaces. A
	// kube-controller-manager also does that, if there is one (--default-service-accounts=false).
	NoDefaultServiceAccounts bool `flag:"!default-service-accounts"`
	// NoQuotaUsage does not update the status of ResourceQuotas (their limits and the usage of objects). A
	// kube-controller-manager also does that, if there is one (--quota-usage=false).
	NoQuotaUsage bool `flag:"!quota-usage"`
	// NoWorkloadNotices switches notices off. Without it, a person who creates a workload with kubectl or Helm
	// gets a warning and an Event if there is no sign of a kube-controller-manager or a kube-scheduler
	// (--workload-notices=false).
	NoWorkloadNotices bool `flag:"!workload-notices"`
	// PolicyTypeChecks checks the types in the expressions of ValidatingAdmissionPolicies, and writes the errors
	// to their status. It is off by default, because a client that creates a policy and then updates it does not
	// expect another change in between. A kube-controller-manager also does these checks, if there is one
	// (--policy-type-checks).
	PolicyTypeChecks bool `flag:"policy-type-checks"`
}
