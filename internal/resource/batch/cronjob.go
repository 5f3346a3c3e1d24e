package batch

import (
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// maxCronJobName leaves 11 of the 63 characters of a label for the suffix of the jobs' names.
// The controller appends a hyphen and the scheduled time in minutes since 1970, for example backup-28391040.
const maxCronJobName = 52

// cronJob returns the kind of CronJobs. A change of the job template concerns only jobs that are created later, so
// the template can change, unlike that of a Job.
func cronJob(gates *jobGates) *registry.Kind {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "batch", Resource: "cronjobs", Name: "CronJob", ShortNames: []string{"cj"},
			Categories: []string{"all"}, Namespaced: true,
		},
		RunBy:    []string{registry.ControllerManager, registry.Scheduler},
		Versions: []registry.Version{declare.Version[batchv1.CronJob]("v1", defaultCronJob)},
		Storage:  registry.Storage{Version: "v1", Path: "cronjobs"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Metadata: registry.Metadata{
			ValidateName: apivalidation.NameIsDNSSubdomain, OnStatusUpdate: registry.MetaNothing,
		},
		Subresources: []registry.Subresource{declare.Status()},
		Strategy: registry.Strategy[*batchv1.CronJob]{
			Generation:    true,
			PrepareCreate: func(c *batchv1.CronJob) { gates.dropNew(&c.Spec.JobTemplate.Spec) },
			PrepareUpdate: func(c, old *batchv1.CronJob) {
				gates.drop(&c.Spec.JobTemplate.Spec, &old.Spec.JobTemplate.Spec)
			},
			// The length of the name is only validated on create, so that objects with longer
			// names can still be updated.
			ValidateCreate: func(c *batchv1.CronJob) field.ErrorList {
				return append(gates.validateCronJob(c, nil), field.InvalidIf(len(c.Name) > maxCronJobName,
					field.NewPath("metadata", "name"), c.Name, "must be no more than 52 characters")...)
			},
			ValidateUpdate: gates.validateCronJob,
			Warn: func(c, old *batchv1.CronJob) []string {
				path := field.NewPath("spec", "jobTemplate", "spec", "template")
				if old == nil {
					return append(declare.PodNameWarnings(c.Name),
						core.PodTemplateWarnings(path, &c.Spec.JobTemplate.Spec.Template)...)
				}
				var warnings []string
				if c.Generation != old.Generation {
					warnings = core.PodTemplateWarnings(path, &c.Spec.JobTemplate.Spec.Template)
				}
				// A new CronJob with such a schedule is refused. Only an update of a CronJob that already had one
				// comes here without an error.
				if strings.Contains(c.Spec.Schedule, "TZ") {
					// The path is kube-apiserver's.
					warnings = append(warnings, "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "+
						"https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
				}
				return warnings
			},
		}.Untyped(),
		Table: registry.Table[*batchv1.CronJob]{
			Columns: table.WithTemplate(batchv1.JobSpec{}.SwaggerDoc()["selector"],
				table.Name,
				table.Column("Schedule", "string", spec["schedule"]),
				table.Column("Timezone", "string", spec["timeZone"]),
				table.Column("Suspend", "boolean", spec["suspend"]),
				table.Column("Active", "integer", status["active"]),
				table.Column("Last Schedule", "string", status["lastScheduleTime"]),
				table.Age),
			Cells: cronJobCells,
		}.Untyped(),
	}
}

// defaultCronJob sets the defaults of batch/v1. The controller keeps the last three successful jobs and the last
// failed one. Allow means that a job starts even if the one before it still runs.
func defaultCronJob(c *batchv1.CronJob) {
	declare.Value(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	declare.Pointer(&c.Spec.Suspend, false)
	declare.Pointer(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	declare.Pointer(&c.Spec.FailedJobsHistoryLimit, 1)
	// The defaults of the job template are set when the job is created.
	template := &c.Spec.JobTemplate.Spec
	defaultPodFailurePolicy(template.PodFailurePolicy)
	core.DefaultPodTemplate(&template.Template)
}

// cronJobCells returns the cells of a CronJob. The schedule is shown as written; without timeZone it is in the
// time zone of kube-controller-manager.
func cronJobCells(c *batchv1.CronJob) []any {
	suspend, selector := table.Unset, table.None
	var last any = table.None
	if s := c.Spec.Suspend; s != nil {
		suspend = map[bool]string{true: "True", false: "False"}[*s]
	}
	if t := c.Status.LastScheduleTime; t != nil {
		last = table.AgeOf(*t)
	}
	template := &c.Spec.JobTemplate.Spec
	if template.Selector != nil {
		selector = metav1.FormatLabelSelector(template.Selector)
	}
	names, images := core.ContainerNames(&template.Template.Spec)
	return []any{
		c.Name, c.Spec.Schedule, ptr.Deref(c.Spec.TimeZone, table.None), suspend, int64(len(c.Status.Active)), last,
		table.AgeOf(c.CreationTimestamp), names, images, selector,
	}
}
