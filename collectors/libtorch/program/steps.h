// Steps of the exported module, with the parts, ranges and random order of the steps that Python runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "job.h"

// A range of the trace, of the kind that Python's record_function makes.
class Range {
 public:
  explicit Range(const std::string& name) : function_(at::RecordScope::USER_SCOPE) {
    if (function_.isActive()) function_.before(name, -1);
  }

 private:
  at::RecordFunction function_;
};

class Batches {
 public:
  Batches(const Job& job, at::Device device)
      : inputs_(job.tensors("inputs")), targets_(job.tensors("targets")), device_(device),
        pinned_(job.flag("pin_memory")) {}

  struct Batch {
    std::vector<c10::IValue> inputs, targets;
  };

  Batch next() const {
    std::vector<at::Tensor> inputs, targets;
    {
      const Range range("enumerate(DataLoader)#HostBatches.__next__");
      const auto order = at::randperm(inputs_.at(0).size(0));
      inputs = drawn(inputs_, order);
      targets = drawn(targets_, order);
    }
    return {moved(inputs), moved(targets)};
  }

 private:
  std::vector<at::Tensor> drawn(const std::vector<at::Tensor>& tensors, const at::Tensor& order) const {
    std::vector<at::Tensor> found;
    for (const auto& tensor : tensors) {
      const auto taken = tensor.index({order});
      found.push_back(pinned_ ? taken.pin_memory() : taken);
    }
    return found;
  }

  std::vector<c10::IValue> moved(const std::vector<at::Tensor>& tensors) const {
    std::vector<c10::IValue> found;
    for (const auto& tensor : tensors) found.emplace_back(tensor.to(tensor.options().device(device_), pinned_));
    return found;
  }

  std::vector<at::Tensor> inputs_, targets_;
  at::Device device_;
  bool pinned_;
};

class Program {
 public:
  virtual ~Program() = default;
  virtual c10::IValue step() = 0;
};

class Inference : public Program {
 public:
  Inference(const Job& job, torch::jit::Module module, at::Device device)
      : module_(std::move(module)), batches_(job, device) {}

  c10::IValue step() override {
    const c10::InferenceMode inference;
    return module_.forward(batches_.next().inputs);
  }

 private:
  torch::jit::Module module_;
  Batches batches_;
};

// The optimizer that the workload trains with in Python.
inline std::unique_ptr<torch::optim::Optimizer> optimizer(const Job& job, std::vector<at::Tensor> parameters) {
  const auto kind = job.text("optimizer");
  const double rate = job.real("lr"), decay = job.real("weight_decay");
  if (kind == "SGD") {
    const auto options = torch::optim::SGDOptions(rate).momentum(job.real("momentum")).weight_decay(decay);
    return std::make_unique<torch::optim::SGD>(std::move(parameters), options);
  }
  const auto betas = std::make_tuple(job.real("beta1"), job.real("beta2"));
  if (kind == "Adam") {
    const auto options = torch::optim::AdamOptions(rate).betas(betas).eps(job.real("eps")).weight_decay(decay);
    return std::make_unique<torch::optim::Adam>(std::move(parameters), options);
  }
  const auto options = torch::optim::AdamWOptions(rate).betas(betas).eps(job.real("eps")).weight_decay(decay);
  return std::make_unique<torch::optim::AdamW>(std::move(parameters), options);
}

class Training : public Program {
 public:
  // The module takes inputs and targets and returns the loss.
  Training(const Job& job, torch::jit::Module module, at::Device device)
      : module_(std::move(module)), batches_(job, device), kind_(job.text("optimizer")),
        zero_grad_(job.text("zero_grad")) {
    for (const auto& parameter : module_.parameters()) parameters_.push_back(parameter);
    optimizer_ = optimizer(job, parameters_);
  }

  c10::IValue step() override {
    auto batch = batches_.next();
    zero_grad();
    auto& given = batch.inputs;
    given.insert(given.end(), batch.targets.begin(), batch.targets.end());
    const auto loss = module_.forward(given).toTensor();
    loss.backward();
    {
      const Range range("Optimizer.step#" + kind_ + ".step");
      optimizer_->step();
    }
    return loss.detach();
  }

 private:
  void zero_grad() {
    const Range range("Optimizer.zero_grad#" + kind_ + ".zero_grad");
    if (zero_grad_ == "default") return optimizer_->zero_grad();
    std::vector<at::Tensor> gradients;
    for (auto& parameter : parameters_) {
      if (parameter.grad().defined()) gradients.push_back(parameter.mutable_grad());
    }
    if (zero_grad_ == "foreach" && !gradients.empty()) return at::_foreach_zero_(gradients);
    for (auto& gradient : gradients) gradient.zero_();
  }

  torch::jit::Module module_;
  Batches batches_;
  std::string kind_, zero_grad_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

inline std::unique_ptr<Program> program(const Job& job, at::Device device) {
  auto module = torch::jit::load(job.text("module"), device);
  if (job.text("mode") == "infer") return std::make_unique<Inference>(job, std::move(module), device);
  return std::make_unique<Training>(job, std::move(module), device);
}
