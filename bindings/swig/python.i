/* python.i: how Python passes arrays, lists and callbacks, and what it gets back.
 *
 * A function that fails raises the exception of its status, with the library's message. Out parameters are returned;
 * a status is returned only where it says more than "done" (IN_PROGRESS). Handles are opaque pointers: the package
 * over this module decides when they end. */
%{
#include "python_arrays.h"
#include "python_support.h"
%}
%nothread;

/* -- The lock is released where the library waits or computes ------------------------------------------------- */
%thread ringattn_context_create;
%thread ringattn_context_destroy;
%thread ringattn_comm_create_local;
%thread ringattn_comm_destroy;
%thread ringattn_comm_create_from_id;
%thread ringattn_comm_create_from_environment;
%thread ringattn_comm_create_from_allgather;
%thread ringattn_unique_id_create;
%thread ringattn_plan_create;
%thread ringattn_plan_create_array;
%thread ringattn_plan_preview;
%thread ringattn_plan_destroy;
%thread ringattn_supports;
%thread ringattn_forward;
%thread ringattn_forward_array;
%thread ringattn_backward;
%thread ringattn_backward_array;
%thread ringattn_request_test;
%thread ringattn_request_wait;
%thread ringattn_request_destroy;
%thread ringattn_shard;
%thread ringattn_unshard;
%thread ringattn_merge;

/* -- Statuses and out parameters ---------------------------------------------------------------------------------- */
%typemap(out) ringattn_status {
  if ($1 < 0) {
    ra_raise($1);
    SWIG_fail;
  }
  $result = $1 == RINGATTN_OK ? SWIG_Py_Void() : PyLong_FromLong($1);
}
%typemap(out) ringattn_status ringattn_comm_status = ringattn_status;

%define %ringattn_out(T)
%typemap(in, numinputs=0) T** out (T* made = NULL) "$1 = &made;"
%typemap(argout) T** out { $result = ra_output($result, SWIG_NewPointerObj(*$1, $descriptor(T*), 0)); }
%enddef
%ringattn_out(ringattn_context)
%ringattn_out(ringattn_comm)
%ringattn_out(ringattn_plan)
%typemap(in, numinputs=0) ringattn_request** request (ringattn_request* made = NULL) "$1 = &made;"
%typemap(argout) ringattn_request** request {
  $result = ra_output($result, SWIG_NewPointerObj(*$1, $descriptor(ringattn_request*), 0));
}
%typemap(in, numinputs=0) int32_t* rank (int32_t value = 0), int32_t* world_size (int32_t value = 0) "$1 = &value;"
%typemap(argout) int32_t* rank, int32_t* world_size { $result = ra_output($result, PyLong_FromLong(*$1)); }
%typemap(in, numinputs=0) int64_t* length (int64_t value = 0) "$1 = &value;"
%typemap(argout) int64_t* length { $result = ra_output($result, PyLong_FromLongLong(*$1)); }

/* -- Any array as a tensor ------------------------------------------------------------------------------------------- */
%rename(View) ringattn_view;
%feature("docstring") ringattn_view "A tensor over the memory of an array, which it keeps alive.";
typedef struct {} ringattn_view;
%exception ringattn_view::ringattn_view {
  $action
  if (result == NULL) SWIG_fail;
}
%extend ringattn_view {
  ringattn_view(PyObject* array, const char* name, int writable, const char* axes, const char* order, int32_t as_dtype) {
    return ra_view_new(array, name, writable, axes, order, as_dtype);
  }
  ~ringattn_view() { ra_view_free($self); }
  const ringattn_tensor* tensor() { return &$self->tensor; }
  int32_t dtype() { return $self->tensor.dtype; }
  PyObject* shape() { return ra_int64s($self->tensor.shape, 4); }
  PyObject* stride() { return ra_int64s($self->tensor.stride, 4); }
}
%typemap(in) const ringattn_tensor* {
  void* pointer = NULL;
  if (SWIG_IsOK(SWIG_ConvertPtr($input, &pointer, $descriptor(ringattn_view*), 0)))
    $1 = pointer == NULL ? NULL : &((ringattn_view*)pointer)->tensor;
  else if (SWIG_IsOK(SWIG_ConvertPtr($input, &pointer, $descriptor(ringattn_tensor*), 0)))
    $1 = (ringattn_tensor*)pointer;
  else
    SWIG_exception_fail(SWIG_TypeError, "in method '$symname', argument $argnum: expected a View");
}

/* -- Lists: int64 numbers, runs, and one entry a rank ----------------------------------------------------------------- */
%rename(Int64s) ringattn_int64s;
typedef struct {} ringattn_int64s;
%exception ringattn_int64s::ringattn_int64s {
  $action
  if (result == NULL) SWIG_fail;
}
%extend ringattn_int64s {
  ringattn_int64s(PyObject* values) { return ra_int64s_new(values); }
  ~ringattn_int64s() { PyMem_Free($self); }
}
%typemap(in) const int64_t* cu_q, const int64_t* cu_k {
  void* pointer = NULL;
  if (!SWIG_IsOK(SWIG_ConvertPtr($input, &pointer, $descriptor(ringattn_int64s*), 0)))
    SWIG_exception_fail(SWIG_TypeError, "in method '$symname', argument $argnum: expected Int64s");
  $1 = pointer == NULL ? NULL : ((ringattn_int64s*)pointer)->values;
}
%typemap(in) const ringattn_run* runs_k, const ringattn_run* runs_q { /* three numbers a run */
  void* pointer = NULL;
  if (!SWIG_IsOK(SWIG_ConvertPtr($input, &pointer, $descriptor(ringattn_int64s*), 0)))
    SWIG_exception_fail(SWIG_TypeError, "in method '$symname', argument $argnum: expected Int64s");
  $1 = pointer == NULL ? NULL : (ringattn_run*)((ringattn_int64s*)pointer)->values;
}

%define %ringattn_pointers(T, NAME)
%typemap(in) (int32_t count, T* const* NAME) {
  if (ra_list($input, #NAME, sizeof(T*), (void**)&$2, &$1) != 0) SWIG_fail;
  for (int32_t i = 0; i < $1; ++i) {
    PyObject* item = PySequence_GetItem($input, i);
    int converted = SWIG_ConvertPtr(item, (void**)&$2[i], $descriptor(T*), 0);
    Py_XDECREF(item);
    if (!SWIG_IsOK(converted)) SWIG_exception_fail(SWIG_TypeError, #NAME ": expected a sequence of handles");
  }
}
%typemap(freearg) (int32_t count, T* const* NAME) "PyMem_Free((void*)$2);"
%enddef
%ringattn_pointers(ringattn_comm, comms)
%ringattn_pointers(ringattn_plan, plans)

/* A struct each, copied into an array. Fewer or more than `count` of them are refused. */
%define %ringattn_structs(T, NAME)
%typemap(in) const T* NAME {
  int32_t given = 0;
  if (ra_list($input, #NAME, sizeof(T), (void**)&$1, &given) != 0) SWIG_fail;
  for (int32_t i = 0; i < given; ++i) {
    void* pointer = NULL;
    PyObject* item = PySequence_GetItem($input, i);
    int converted = SWIG_ConvertPtr(item, &pointer, $descriptor(T*), 0);
    Py_XDECREF(item);
    if (!SWIG_IsOK(converted) || pointer == NULL) SWIG_exception_fail(SWIG_TypeError, #NAME ": expected a sequence of structs");
    memcpy((T*)$1 + i, pointer, sizeof(T));
  }
  if (given != arg1) {
    PyErr_Format(PyExc_ValueError, #NAME ": has %d entries; expected %d, one a handle", (int)given, (int)arg1);
    SWIG_fail;
  }
}
%typemap(freearg) const T* NAME "PyMem_Free((void*)$1);"
%enddef
%ringattn_structs(ringattn_plan_desc, each_desc)
%ringattn_structs(ringattn_forward_args, each_args)
%ringattn_structs(ringattn_backward_args, each_args)

%typemap(in, numinputs=0) ringattn_comm** each_out { $1 = (ringattn_comm**)PyMem_Calloc(4096, sizeof(ringattn_comm*)); }
%typemap(argout) ringattn_comm** each_out {
  PyObject* list = PyList_New(0);
  for (int32_t i = 0; list != NULL && i < arg2->world_size; ++i) {
    PyObject* item = SWIG_NewPointerObj($1[i], $descriptor(ringattn_comm*), 0);
    PyList_Append(list, item);
    Py_XDECREF(item);
  }
  $result = ra_output($result, list);
}
%typemap(freearg) ringattn_comm** each_out "PyMem_Free($1);"
%typemap(in, numinputs=0) ringattn_plan** each_out { $1 = NULL; }
%typemap(check) ringattn_plan** each_out { $1 = (ringattn_plan**)PyMem_Calloc(arg1 > 0 ? arg1 : 1, sizeof(ringattn_plan*)); }
%typemap(argout) ringattn_plan** each_out {
  PyObject* list = PyList_New(0);
  for (int32_t i = 0; list != NULL && i < arg1; ++i) {
    PyObject* item = SWIG_NewPointerObj($1[i], $descriptor(ringattn_plan*), 0);
    PyList_Append(list, item);
    Py_XDECREF(item);
  }
  $result = ra_output($result, list);
}
%typemap(freearg) ringattn_plan** each_out "PyMem_Free($1);"

/* The header's array forms, said here first with names of their own, so that the maps above apply to them alone. */
%warnfilter(322) ringattn_comm_create_local;
%warnfilter(322) ringattn_plan_create_array;
%warnfilter(322) ringattn_forward_array;
%warnfilter(322) ringattn_backward_array;
typedef int32_t ringattn_status;
ringattn_status ringattn_comm_create_local(ringattn_context* context, const ringattn_comm_desc* desc, ringattn_comm** each_out);
ringattn_status ringattn_plan_create_array(int32_t count, ringattn_comm* const* comms, const ringattn_plan_desc* each_desc,
                                           ringattn_plan** each_out);
ringattn_status ringattn_forward_array(int32_t count, ringattn_plan* const* plans, const ringattn_forward_args* each_args,
                                       ringattn_request** request);
ringattn_status ringattn_backward_array(int32_t count, ringattn_plan* const* plans, const ringattn_backward_args* each_args,
                                        ringattn_request** request);

/* -- An all-gather in Python: called with bytes, returns one bytes object a rank ------------------------------------------ */
%typemap(in) (ringattn_allgather_fn allgather, void* user) (ra_allgather state) {
  if (!PyCallable_Check($input)) SWIG_exception_fail(SWIG_TypeError, "allgather: expected a callable");
  memset(&state, 0, sizeof state);
  state.callable = $input;
  state.world_size = arg2->world_size;
  $1 = ra_allgather_call;
  $2 = &state;
}
%typemap(argout) (ringattn_allgather_fn allgather, void* user) ""
%exception ringattn_comm_create_from_allgather {
  $action
  if (ra_allgather_failed(arg5)) SWIG_fail;
}

/* -- Text and lists instead of memory to fill ------------------------------------------------------------------------------ */
%ignore ringattn_plan_describe;
%ignore ringattn_plan_trace;
%ignore ringattn_plan_positions;
%ignore ringattn_unique_id_to_text;
%rename(plan_describe) ra_plan_describe;
%rename(plan_trace) ra_plan_trace;
%rename(plan_positions) ra_plan_positions;
%rename(unique_id_to_text) ra_unique_id_to_text;
PyObject* ra_plan_describe(const ringattn_plan* plan, const ringattn_call* call, int32_t format);
PyObject* ra_plan_trace(const ringattn_plan* plan);
PyObject* ra_plan_positions(const ringattn_plan* plan, int32_t axis, int32_t rank, int64_t batch_row, const ringattn_call* call);
PyObject* ra_unique_id_to_text(const ringattn_unique_id* id);
